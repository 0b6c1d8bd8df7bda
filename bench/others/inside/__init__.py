"""Inside the environment of a product: programs that know only the standard library and that product.

Each does one workload once. It is given its order as JSON in its only argument, answers one JSON line for each figure,
and ends with its whole process group when its standard input ends.
"""
