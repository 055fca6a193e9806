import numpy as np


class Selector:
    def __init__(self, participation, rounds, cohort, over):
        self.p, self.rounds, self.cohort, self.over = participation, rounds, cohort, over

    def select(self, t, available, last, count, generator):
        b, k = self.p.separation_and_count(self.rounds)
        ok = available[((last < 0) | (t - last >= b)) & (count < k)]
        n = min(len(ok), int(self.cohort * self.over))
        return np.sort(generator.choice(ok, n, replace=False))
