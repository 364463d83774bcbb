"""The gallery of cases: its folder, the page that shows it, and the answers to the page's requests.

``static/`` contains the page, and the image viewer, which the readers' page of the leaderboard also uses.
"""
