"""What the kernels of a mixture count, and where it stands among the numbers that they return."""

# What a kernel counts: joint moves accepted and proposed, records that changed their cluster and that might
# have, splits and merges by scans accepted and proposed, moves of atoms
# accepted and proposed, splits and merges by dealing out given the records accepted and proposed; then those
# by weights, accepted and proposed, of each kind; then moves of records given their labels, likewise.
SPLIT_KINDS = ("fresh", "released", "kept")
ACCEPTED, PROPOSED, MOVED, CONSIDERED, SPLIT, TRIED = range(6)
ATOMS_ACCEPTED, ATOMS_PROPOSED, DEALT, DEALINGS, FIRST_SPLIT = range(6, 11)
GIVEN_LABELS = FIRST_SPLIT + 2 * len(SPLIT_KINDS)
N_TALLY = GIVEN_LABELS + 2
