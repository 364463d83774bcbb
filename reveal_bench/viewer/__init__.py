"""Case viewer: write a gallery folder of cases, and serve the page that shows it.

``static/`` contains the page and its image viewer, which the leaderboard's page for readers also uses.
"""
