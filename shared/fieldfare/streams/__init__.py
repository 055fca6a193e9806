"""Running noise: row t of B z, one row a call, for every shape of B that Fieldfare knows.

All streams number the rows of z by round (row t of z is drawn in round t; trees number their nodes), so one
key gives one z whatever the mechanism. A state can be resumed exactly and names the key and the coefficients
that it belongs to; `skip` rebuilds it from the key alone. Stamping (`restart_every = r`) makes B
block-diagonal: the state is cleared every r rounds while z goes on, so no row of z is ever used twice.
"""
