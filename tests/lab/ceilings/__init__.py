"""Many runs at once against ceilings that refuse, on a server that is killed again and again."""
