"""From predictions to numbers: scores, mistakes, diagnoses, the evaluation."""
