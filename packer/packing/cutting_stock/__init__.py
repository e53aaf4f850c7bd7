"""One-dimensional cutting stock on a histogram of lengths, by column generation (Gilmore and Gomory 1961, 1963).

    minimize    rows, sum over patterns p of x_p            a pattern: what one row holds
    such that   sum over p of a_ip * x_p >= n_i             for each length i, of which there are n_i documents

    grouping             fewer, longer lengths where there would be too many
    knapsack             pricing: the patterns worth most at given duals, by dynamic programming
    patterns             the patterns so far, without repeats
    master               the linear program over these, by HiGHS
    column_generation    the two in turn, until the bound says that nothing can be gained
    bound                what no plan can go below, in exact integers
    filling              documents into the places of chosen patterns, the rest by best fit
    rounding             from the fractional solution to whole rows
    solving              all of it, from a histogram to a plan
    effort               what it may cost

The master has no restriction of its own for "a place for a document serves a shorter one too": zero-cost columns move
supply from each length to the next shorter one (the dual-optimal inequalities of Valerio de Carvalho 2005, which here
say that duals grow with length). It takes up to half the rounds, and rounding stays closer to the bound.
"""

from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.solving import Solved, solve

__all__ = ["Effort", "Solved", "solve"]
