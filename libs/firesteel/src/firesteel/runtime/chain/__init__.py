"""A chain: operators that run in one task without an exchange between them, as a tree of stages.

``plan`` builds the tree, ``stages`` run operators in slices, ``chain`` moves batches through the stages, and
``partitioners`` choose the channels of records that leave.
"""
