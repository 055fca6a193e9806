"""Logistic regression of scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def digits(partition: int, partitions: int = 10) -> tuple:
    """Stands for the example's data set; the last 297 digits are the server's."""
    images, labels = load_digits(return_X_y=True)
    mine = slice(1500, None) if partition < 0 else slice(partition, 1500, partitions)
    return (images[mine] / 16).astype("float32"), labels[mine]


def get_model_parameters(model: LogisticRegression):
    return [model.coef_, model.intercept_] if model.fit_intercept else [model.coef_]


def set_model_params(model: LogisticRegression, params):
    model.coef_ = params[0]
    if model.fit_intercept:
        model.intercept_ = params[1]
    return model


def set_initial_params(model: LogisticRegression):
    model.classes_ = np.arange(10)
    model.coef_ = np.zeros((10, 64))
    if model.fit_intercept:
        model.intercept_ = np.zeros((10,))


def create_log_reg_and_instantiate_parameters(penalty):
    model = LogisticRegression(C=1 / penalty, max_iter=5, warm_start=True, solver="saga")
    set_initial_params(model)
    return model
