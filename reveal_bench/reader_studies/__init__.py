"""Reader studies: several readers, several cases, one or more modalities, and what may be said beyond these readers.

:mod:`.study` reads a table of readings and makes figures of merit with their covariances, :mod:`.analysis` analyses
them after Obuchowski and Rockette.
"""
