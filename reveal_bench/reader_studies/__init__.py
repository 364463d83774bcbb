"""Analyse and plan reader studies with several readers, cases and modalities.

:mod:`.study` parses a table of ratings and computes figures of merit and their covariances. :mod:`.analysis` compares
modalities by the method of Obuchowski and Rockette. :mod:`.sizing` computes the power of a planned study.
"""
