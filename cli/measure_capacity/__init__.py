"""`trimtab measure-capacity`: what one consumer sustains on this machine."""
