"""How Python functions become machine code, and where it is kept."""

from pymc_dp.lowering.compiling.powers import provide_powers

# before anything is compiled, or loaded from the disk
provide_powers()
