# Runs a statement for each line, and answers with the time it took in ms.
import os, sys, time
import duckdb

os.chdir(sys.argv[1])
connection = duckdb.connect("peer.duckdb")
connection.execute("SET enable_progress_bar = false")
for line in sys.stdin:
    statement = line.replace("/ 24", "// 24").replace("/ 168", "// 168").replace("/ 730", "// 730")
    connection.execute("DROP TABLE IF EXISTS temp.answer")
    begun = time.perf_counter()
    try:
        connection.execute(statement)
        print((time.perf_counter() - begun) * 1e3, flush=True)
    except Exception as error:
        print("error:", str(error).replace("\n", " "), flush=True)
