"""sklearn_logreg"""
