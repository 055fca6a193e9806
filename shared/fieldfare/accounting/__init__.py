"""Sensitivity and noise in, privacy out: conversions, composition, charges and calibration."""

from fieldfare.accounting.calibrate import calibrate
from fieldfare.accounting.charge import Amplification, amplification, charge_for, require_valid
from fieldfare.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from fieldfare.accounting.loss import PrivacyLoss
from fieldfare.accounting.sampled import SampledGaussian

__all__ = [
    "Amplification",
    "PrivacyLoss",
    "SampledGaussian",
    "amplification",
    "calibrate",
    "charge_for",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu",
    "require_valid",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
