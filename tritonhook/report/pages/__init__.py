"""What only the HTML page draws: charts, code listings, tables that filter. JSON documents in, a Page out."""
