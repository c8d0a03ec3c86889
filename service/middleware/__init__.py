"""What every request passes before it reaches a route: who may enter, how large it may be, which headers it gets."""
