"""The readers' app: readers judge the suggested labels of studies, one at a time and blinded.

It is a separate application because votes become labels of a future holdout, which the public board's server must never
have. :mod:`.preparation` writes the readers' lists and the paths of images into the data folder. From then on
:mod:`.app` serves that folder and the images only, :mod:`.store` keeps the answers, and :mod:`.images` reads pixels.
"""
