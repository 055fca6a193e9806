"""pandas_histogram"""
