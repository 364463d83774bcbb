"""The readers' app, in which readers judge suggested labels, errors or answers, one at a time and blinded.

The app is separate from the board, because votes become labels of a future holdout, which the board's server must never
have. :mod:`.preparation` writes the readers' lists and the paths of images into the data folder. Then :mod:`.app`
serves only this folder and the images, :mod:`.store` stores the answers, and :mod:`.images` reads pixels.
"""
