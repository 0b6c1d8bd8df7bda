"""Tests of the stock."""

import unittest

from inventory.stock import OutOfStock, Stock


class StockTest(unittest.TestCase):
    """Items come, go and run short."""

    def test_items_come_and_go(self) -> None:
        """What was added can be taken."""
        stock = Stock()

        self.assertEqual(stock.add("lamp", 3), 3)
        self.assertEqual(stock.take("lamp"), 2)

    def test_what_is_not_there_cannot_be_taken(self) -> None:
        """More than there is cannot be taken."""
        with self.assertRaises(OutOfStock):
            Stock({"lamp": 1}).take("lamp", 2)

    def test_short_items_are_listed(self) -> None:
        """Items that run short are listed by name."""
        self.assertEqual(Stock({"rope": 1, "lamp": 5, "axe": 0}).short(2), ["axe", "rope"])


if __name__ == "__main__":
    unittest.main()
