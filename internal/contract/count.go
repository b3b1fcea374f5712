package contract

import (
	"fmt"
	"strconv"
	"strings"
)

// Count returns a number and a noun that agrees with the number: 1 node, 2 nodes, 0 entries.
func Count(n int, noun string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(noun, "y"); ok {
			noun = stem + "ie"
		}
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// CountAre is like Count, but adds the verb: 1 node is, 2 nodes are.
func CountAre(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}

// Few returns the first texts of a list as one text, and says how many more there are.
func Few(all []string, most int, separator string) string {
	few := strings.Join(all[:min(len(all), most)], separator)
	if more := len(all) - most; more > 0 {
		few += fmt.Sprintf("%sand %d more", separator, more)
	}
	return few
}
