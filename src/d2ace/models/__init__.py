"""CLIF, DELA, PACA and a plain MLP: multi-label networks behind one interface."""
