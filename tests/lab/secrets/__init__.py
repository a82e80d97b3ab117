"""Made secrets, drawn from the forms that providers publish and the places of real life, not from the guard's rules.

What stands here was written before the rules were last changed, from the providers' pages that `kinds` names. Rules
are tuned on the open half of the seeds alone; of the other half only totals are told.
"""
