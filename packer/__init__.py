"""packer: tokenize a corpus and pack it into exact, full training rows.

    INPUT ──corpus──▶ texts ──tokenizer──▶ tokens ──packing──▶ Plan ──rows──▶ columns ──shards──▶ OUT
            (documents, in partitions)      (a block)   (which slice goes into which row)

Rooms, each importing only from those above it:

    errors · plan · schema        the words: failures, the plan's arrays, the columns on disk
    packing/ · rows · interleave  the algorithms, pure NumPy: plan, gather, order
    metrics                       what a plan costs
    corpus/ · tokenizer           documents from every input form; exact token ids
    staging · shards · manifest   what is on disk, while a run lasts and after it
    executors/ · pipeline         the whole flow
    verify · inspection · report  proof, a look inside, the summary
    cli/                          the command line: click only, one error boundary
"""

__version__ = "0.1.0"
