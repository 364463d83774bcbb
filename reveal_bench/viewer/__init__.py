"""Looking at cases: a gallery folder, the page that shows it, and what answers the page's requests.

``static/`` holds the page, and the film viewer that the readers' page of the leaderboard uses too.
"""
