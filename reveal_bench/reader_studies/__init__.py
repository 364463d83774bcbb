"""Reader studies: several readers, several cases, one or more modalities, and inference beyond these readers.

:mod:`.study` parses a table of ratings and computes figures of merit with their covariances, :mod:`.analysis` analyses
them after Obuchowski and Rockette.
"""
