"""Programs that are installed with Firesteel: links to files of ``examples/``, where there are more.

``firesteel run -pym firesteel.examples.word_count`` runs one on a cluster.
"""
