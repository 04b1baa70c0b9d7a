"""Classes, images, test sets, judgements, and the formats in which others published theirs."""
