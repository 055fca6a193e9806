"""What a plan is likely to achieve, by the theory of regression and a few stated guesses, without any data."""
