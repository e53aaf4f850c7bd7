"""packer: tokenize a corpus and pack it into exact, full training rows.

    INPUT ──corpus──▶ texts ──tokenizer──▶ tokens ──packing──▶ Plan ──rows──▶ columns ──shards──▶ OUT
            (documents, in partitions)      (a block)   (which slice goes into which row)

Rooms, each importing only from those above it:

    errors · plan · schema        the words: failures, the plan's arrays, the columns on disk
    threads · memory              work ahead and behind; free memory given back
    windowing                     windows every S tokens: where, and what they cover; pure NumPy
    similarity/                   which documents are alike, in whole numbers; pure NumPy
    packing/ · rows · interleave  the algorithms, pure NumPy: plan, gather, order
    lengths · batching · pricing/ what each way of batching would cost, from lengths alone
    balancing                     rows dealt to ranks so that their work is even
    metrics · recommending        the least it can cost; what to choose, and why
    relating                      planning by what documents have in common: groups, vectors
    sampling/                     which rows come in which batch of which rank
    remote/                       what lies in a store and is named by a URL
    corpus/ · tokenizer           documents from every input form; what a tokenizer's folder says
    loading                       native code that loads while Python does
    chat/ · rendering             a chat as a text, and which of its characters are trained
    engines/ · alignment          texts to exact token ids, fast where that is proved; characters to token masks
    encoding                      both, for a batch of documents
    blocks · holdout · planning   documents planned at once; those held out for validation; a block's plan and bound
    counting · typed              what passes on the way there, counted; JSON as dataclasses
    staging · shards · manifest   what is on disk, while a run lasts and after it
    cutting                       rows cut from staged documents: windows, and the stream of `wrapped`
    stored/                       data sets read back: rows by group, documents, both as an INPUT
    reader/ · torch               rows and batches for a training loop
    commit · upload               OUT, here and in a store: a whole data set or none
    job                           what determines the rows, and what a staged block and partition came to
    stage · executors/            one partition's work; where it is done: here, in processes, on a cluster
    finish · writing              all shards: of a packing and a row length; of all of them
    running · committed           who does it, what is kept of it for --resume
    pipeline · measuring · stats  the whole flow; the lengths alone, and their prices
    dryrun/                       what a run would give and cost, from a sample
    verify · report · terminal    proof, the summary (packings_summary: a part of it), what stats shows
    inspection/ · page/           a look at rows; what can be shared: stats and rows as HTML
    cli/                          the command line: click only, one error boundary
"""

__version__ = "0.1.0"
