#!/usr/bin/env python3
"""The rules that decide which rows count and what a ratio is worth. Run: python3 bench/test_run.py"""

import json
import math
import os
import random
import statistics
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import run
import servers
import stats

NEAR, FAR, STRADDLING = [60, 62], [330, 340], [60, 340]


def row(server, cost, number=0, c2c=NEAR, **fields):
    return {"run": "r", "round": number, "cell": "plaintext", "server": server, "c2c_ns": c2c,
            "server_cpu_us_per_request": cost, "foreign_on_server_cpu": 0.0, "seconds": 1.0, "errors": 0, **fields}


class Placement(unittest.TestCase):
    """Purpose: a row counts as near or far only if it was so at both ends; each bound is outside its class."""

    def test_bounds(self):
        for trips, expected in [
            ([60, 149.9], "near"), ([60, 150], None), ([250.1, 330], "far"), ([250, 330], None), ([200, 200], None),
            (STRADDLING, None), ([], None), ([None, 60], None),
        ]:
            self.assertEqual(stats.placement({"c2c_ns": trips}), expected, trips)

    def test_rejections_name_their_reason(self):
        self.assertIsNone(stats.rejection(row("a", 4.0)))
        self.assertIsNone(stats.rejection(row("a", 4.0, foreign_on_server_cpu=0.12)))
        self.assertIn("process", stats.rejection(row("a", 4.0, foreign_on_server_cpu=0.121)))
        self.assertIsNone(stats.rejection(row("a", 4.0, foreign_on_server_cpu=0.29, seconds=0.1)))
        self.assertIn("client", stats.rejection(row("a", 4.0, foreign_on_client_cpu=0.121)))
        self.assertIn("moved", stats.rejection(row("a", 4.0, c2c=STRADDLING)))
        self.assertEqual(stats.rejection({"run": "r", "errors": 1, "error": "died"}), "error")


class Pairs(unittest.TestCase):
    """Purpose: ratios are taken within one round, one run and one placement, and say requests per core-second."""

    def test_twice_the_cost_is_half_the_speed(self):
        rows = [row("ours", 4.0), row("base", 8.0)]
        self.assertEqual(stats.paired_ratios(rows, "plaintext", "ours", "base"), [("near", 2.0)])
        self.assertEqual(stats.paired_ratios(rows, "plaintext", "base", "ours"), [("near", 0.5)])

    def test_nothing_is_paired_across_rounds_runs_cells_or_placements(self):
        for other in (row("base", 8.0, number=1), row("base", 8.0, run="s"), row("base", 8.0, cell="json"),
                      row("base", 8.0, c2c=FAR), row("base", 8.0, c2c=STRADDLING), row("base", 8.0, error="died")):
            self.assertEqual(stats.paired_ratios([row("ours", 4.0), other], "plaintext", "ours", "base"), [], other)

    def test_both_placements_count_and_are_told_apart(self):
        rows = [row("ours", 4.0), row("base", 8.0), row("ours", 6.0, 1, FAR), row("base", 9.0, 1, FAR)]
        one = stats.compare(rows, "plaintext", "ours", "base")
        self.assertEqual(one["by_placement"], {"near": {"pairs": 1, "speed": 2.0}, "far": {"pairs": 1, "speed": 1.5}})
        self.assertEqual((one["pairs"], one["speed"], one["speed_ci95"]), (2, 1.75, None))


class Bootstrap(unittest.TestCase):
    """Purpose: the interval is what is known of it: exact for constants, covering about 95 % for normal samples."""

    def test_too_few_values_have_no_interval(self):
        self.assertIsNone(stats.bootstrap_median([1.0] * (stats.PAIRS_MIN - 1)))
        self.assertEqual(stats.bootstrap_median([1.5] * stats.PAIRS_MIN), (1.5, 1.5))

    def test_agrees_with_order_statistics(self):
        # The median of 9 draws from 1..9 is at most k when at least 5 of them are: a binomial tail, computed here. The
        # interval ends at the first k whose tail reaches 2.5 %, and lies symmetrically about 5.
        def at_most(k):
            return sum(math.comb(9, n) * (k / 9) ** n * (1 - k / 9) ** (9 - n) for n in range(5, 10))

        low = next(k for k in range(1, 10) if at_most(k) >= 0.025)
        self.assertEqual(stats.bootstrap_median(list(range(1, 10))), (low, 10 - low))

    def test_covers_the_true_median_about_as_often_as_it_says(self):
        prng, resamples = random.Random(7), stats.RESAMPLES
        stats.RESAMPLES = 400
        self.addCleanup(setattr, stats, "RESAMPLES", resamples)
        covered = 0
        for sample in range(300):
            low, high = stats.bootstrap_median([prng.gauss(1.0, 0.02) for _ in range(15)], seed=sample)
            covered += low <= 1.0 <= high
        self.assertTrue(0.90 <= covered / 300 <= 0.99, covered / 300)

    def test_cost_is_the_inverse_of_speed_and_so_is_its_interval(self):
        rows = [made for number, cost in enumerate([4.0, 4.1, 4.2, 4.3, 4.4])
                for made in (row("ours", cost, number), row("base", 8.0, number))]
        one = stats.compare(rows, "plaintext", "ours", "base")
        self.assertAlmostEqual(one["cost"], 4.2 / 8.0, places=3)
        low, high = one["cost_ci95"]
        self.assertLessEqual(low, one["cost"])
        self.assertGreaterEqual(high, one["cost"])


class Report(unittest.TestCase):
    """Purpose: the table and the warnings say what the rows say, and no row can break them."""

    def test_medians_are_per_placement_and_rejections_are_counted(self):
        rows = [row("a", cost, number) for number, cost in enumerate([3.0, 4.0, 9.0])]
        rows += [row("a", 6.0, 3, FAR), row("a", 5.0, 4, STRADDLING), row("a", 1.0, 5, error="died")]
        derived = stats.derive(rows, ["base"])
        cost = derived["summaries"][0]["cpu_us_per_request"]
        self.assertEqual(cost, {"near": {"rows": 3, "median": statistics.median([3, 4, 9])},
                                "far": {"rows": 1, "median": 6.0}})
        self.assertEqual(sum(derived["rejected"].values()), 2)
        text = stats.table(derived, ["base"])
        self.assertIn("4.000 (3)", text)
        self.assertIn("1 failed: died", text)

    def test_a_busy_client_before_an_idle_server_is_said(self):
        rows = [row("a", 4.0, client_utilisation=0.95, server_utilisation=0.80)]
        self.assertTrue(any("the client was 95% busy" in text for text in stats.warnings(rows)))
        rows = [row("a", 4.0, client_utilisation=0.95, server_utilisation=0.99)]
        self.assertEqual(stats.warnings(rows), [])

    def test_rows_of_servers_that_only_failed_still_make_a_table(self):
        rows = [{"run": "r", "round": 0, "cell": "close", "server": "may", "errors": 1, "error": "no"}]
        self.assertIn("may", stats.table(stats.derive(rows, ["axum"]), ["axum"]))


class Records(unittest.TestCase):
    """Purpose: what is written can be read back, and the order of a run follows from its seed."""

    def test_rows_survive_the_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/rows.jsonl"
            records = [{"kind": "meta", "run": "r"}, {"kind": "row", **row("a", 4.0)}]
            for record in records:
                run.append(path, record)
            self.assertEqual(run.read_rows(path), ([records[1]], [records[0]]))

    def test_the_seed_decides_the_order(self):
        order = lambda: run.shuffled(random.Random(3), list(range(50)))
        self.assertEqual(order(), order())
        self.assertEqual(sorted(order()), list(range(50)))

    def test_evidence_is_json_with_every_row_and_is_never_overwritten(self):
        rows = [row("a", 4.0), row("axum", 8.0)]
        options = type("Options", (), {"name": "unit", "baseline": ["axum"]})
        with tempfile.TemporaryDirectory() as directory:
            real, run.BENCH = run.BENCH, directory
            self.addCleanup(setattr, run, "BENCH", real)
            metas = [{"started": "2026-01-02T03:04:05+00:00"}]
            paths = [run.write_evidence(options, metas, rows, stats.derive(rows, ["axum"])) for _ in range(2)]
            self.assertEqual([os.path.basename(path) for path in paths],
                             ["2026-01-02-unit.json", "2026-01-02-unit-2.json"])
            with open(paths[0]) as file:
                record = json.load(file)
        self.assertEqual(record["rows"], rows)
        self.assertEqual(record["derived"]["comparisons"][0]["speed"], 2.0)


class Wrk(unittest.TestCase):
    """Purpose: wrk's units are understood; a missing figure is an error and never a zero."""

    def test_units(self):
        for text, expected in [("254.00us", 254), ("1.02ms", 1020), ("2.00s", 2e6), ("1.50m", 9e7)]:
            self.assertAlmostEqual(run.microseconds(text), expected)

    def test_missing_figures(self):
        with self.assertRaises(servers.Failed):
            run.matched(r"(\d+) requests in", "wrk was interrupted")


class Servers(unittest.TestCase):
    """Purpose: a command gets its port, and only the floor is told to close."""

    def test_commands(self):
        plain, close = servers.CELLS["plaintext"], servers.CELLS["close"]
        self.assertEqual(servers.Server("x", "prog --listen a:{port}").argv(81, close), ["prog", "--listen", "a:81"])
        floor = servers.Server("f", "floor uring", is_floor=True)
        self.assertEqual(floor.argv(81, plain), ["floor", "uring"])
        self.assertEqual(floor.argv(81, close), ["floor", "uring", "--churn"])

    def test_a_server_that_dies_is_reported_with_its_last_words(self):
        dying = servers.Server("d", "sh -c 'echo the reason >&2; exit 3'")
        with self.assertRaisesRegex(servers.Failed, "exited with 3.*the reason"):
            with servers.running(dying, servers.CELLS["plaintext"], servers.free_port(18900), 0):
                pass

    def test_the_floor_answers_what_is_checked(self):
        source = f"{servers.BENCH}/floor/src/bin/floor/protocol.rs"
        with open(source) as file:
            self.assertIn(servers.FLOOR_BODY.decode(), file.read())


if __name__ == "__main__":
    unittest.main()
