from localhost/test/base
	run	echo tab	> /tab
Copy package.json /P
cmd ["x"]
