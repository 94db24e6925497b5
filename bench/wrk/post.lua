-- The 8-byte body of the cell `post`.
wrk.method = "POST"
wrk.body = '{"n":42}'
