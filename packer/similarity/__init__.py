"""Which documents are alike: what they are compared by, and how much alike two of them are.

    traits    what travels with documents until rows are planned: vectors, groups
    vectors   vectors as small integers, so that every sum is exact and no machine's rounding shows
    tfidf     vectors of documents from their token ids alone
    likeness  how much alike the documents of a row are, against random ones

Cosine similarity throughout. Nothing here knows of rows' lengths; `packer.packing.semantic` plans by it.
"""

from packer.similarity.traits import Traits

__all__ = ["Traits"]
