"""What calls ask and what answers say, as frozen data: no wire types, no locks, no clock."""
