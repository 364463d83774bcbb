"""The annotation page: where readers judge the suggested labels of studies, one at a time and blinded.

It is an application of its own, because votes are labels of a holdout to be, and the public board's server never holds
those. :mod:`.preparation` puts the lists of readers and the places of pictures into the data folder; from then on
:mod:`.app` serves from there and from the pictures alone, :mod:`.store` keeps the answers, :mod:`.films` reads pixels.
"""
