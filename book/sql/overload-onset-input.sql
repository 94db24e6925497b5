SELECT a.cell AS 'times the capacity', a.server AS mechanism,
  printf('%.1f', 100 * b.of_peak) AS 'before, % of the peak', printf('%.1f', 100 * a.of_peak) AS 'now, % of the peak',
  printf('%.0f', b.p99_us / 1000) AS 'p99 before, ms', printf('%.0f', a.p99_us / 1000) AS 'p99 now, ms'
FROM goodput AS a JOIN goodput AS b USING (record, cell)
WHERE record = '2026-11-28-onset-beside' AND b.server = a.server || '-before'
ORDER BY CAST(cell AS REAL), a.server DESC
