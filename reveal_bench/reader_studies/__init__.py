"""Reader studies: several readers, cases and modalities, and inference beyond these readers and cases.

:mod:`.study` parses a table of ratings and computes figures of merit with their covariances, :mod:`.analysis` analyses
them after Obuchowski and Rockette.
"""
