"""The reader of PLINK files (.bed, .bim, .fam)."""
