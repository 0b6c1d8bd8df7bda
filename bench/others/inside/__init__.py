"""Inside the environment of a product: programs that import only the standard library and that product.

Each does one workload once. It receives its order as JSON in its only argument, and answers with one JSON line for each
figure. It ends with its whole process group when its standard input ends.
"""
