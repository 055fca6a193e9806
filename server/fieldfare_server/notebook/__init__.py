"""What a notebook or a script does with plans: simulate them in this process, compare mechanisms, look at the runs."""
