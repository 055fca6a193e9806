from fieldfare.accounting import charge_for


class RealisedCharge:
    def __init__(self, mechanism, participation):
        self.m, self.p = mechanism, participation
        self.sigma = 1.0
        self.adj = "zero_out"

    def after(self, index, patterns):
        return charge_for(self.m, self.p, self.sigma, index + 1, self.adj)

    def restore(self, patterns, n):
        pass
