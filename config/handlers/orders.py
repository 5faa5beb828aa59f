"""Orders as the warehouse wants them: one unit per ordered item, with the order's facts repeated."""

from typing import Any


def items(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Split an order into its items; a cancelled order has none."""
    if order.get("status") == "cancelled":
        return []
    return [
        {
            "order_no": order["order"],
            "line_no": line,
            "placed_at": order["placed"],
            "customer": order["customer"]["id"],
            "country": order["customer"]["country"],
            "sku": item["sku"],
            "quantity": item["quantity"],
            "unit_price": item["price"],
        }
        for line, item in enumerate(order["items"], start=1)
    ]
