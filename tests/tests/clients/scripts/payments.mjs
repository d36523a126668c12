// What the clients for Node have in common: many payments at once, and one line of JSON about each.
//
// Arguments: the URL, the first amount, the number of payments, the timeout in seconds.

const AT_ONCE = 8;

export async function make(client) {
  const [url, ...numbers] = process.argv.slice(2);
  const [first, number, timeout] = numbers.map(Number);
  const pay = client(url, timeout * 1000);
  const amounts = Array.from({ length: number }, (_, n) => first + n);
  const worker = async () => {
    for (let amount = amounts.shift(); amount !== undefined; amount = amounts.shift()) {
      const made = await pay(amount).then(
        (id) => ({ amount, id }),
        (error) => ({ amount, error: `${error.name}: ${error.message}` }),
      );
      console.log(JSON.stringify(made));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}
