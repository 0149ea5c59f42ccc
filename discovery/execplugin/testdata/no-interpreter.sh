#!/nonexistent/interpreter -x
