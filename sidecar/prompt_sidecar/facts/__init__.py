"""What calls request and what answers contain, as frozen data: no wire types, no locks, no clock."""
