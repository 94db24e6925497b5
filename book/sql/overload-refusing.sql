SELECT CASE a.cell WHEN 'http2-10x' THEN 'HTTP/2, 32 streams' ELSE 'HTTP/1.1' END AS 'kept connections, 10 ×',
  printf('%.1f', 100 * b.of_peak) AS 'before, % of the peak', printf('%.1f', 100 * a.of_peak) AS 'now, % of the peak',
  printf('%.0f', b.p99_us / 1000) AS 'p99 before, ms', printf('%.0f', a.p99_us / 1000) AS 'p99 now, ms', a.rounds AS rounds
FROM goodput AS a JOIN goodput AS b USING (record, cell)
WHERE record = '2026-11-27-refusing' AND a.server = 'after' AND b.server = 'before'
ORDER BY a.cell DESC
