# Runs a statement for each line through one psql, and answers with the time in ms that psql
# reports.
import os, subprocess, sys

os.chdir(sys.argv[1])
psql = subprocess.Popen(["psql", "-qX", "-v", "ON_ERROR_STOP=1", sys.argv[2]], text=True, bufsize=1,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
for line in sys.stdin:
    end = "\n" if line.startswith("\\") else ";\n"
    psql.stdin.write("DROP TABLE IF EXISTS answer;\n\\timing on\n" + line.strip() + end + "\\timing off\n\\echo done\n")
    psql.stdin.flush()
    said = []
    while not said or said[-1] not in ("done", ""):
        said.append(psql.stdout.readline().strip())
    times = [text.split()[1] for text in said if text.startswith("Time:")]
    print(times[-1] if times else "error: " + " ".join(said), flush=True)
