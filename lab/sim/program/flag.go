package program

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// newFlags creates the flag set of a program. It discards the usage text.
func newFlags(name string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// tolerate defines flags that a stand-in accepts and ignores. `switches` are flags without a value. `values` are flags
// with a value.
func tolerate(flags *pflag.FlagSet, switches, values string) {
	for name := range strings.FieldsSeq(switches) {
		flags.Bool(name, false, "")
	}
	for name := range strings.FieldsSeq(values) {
		flags.String(name, "", "")
	}
}

// parse parses arguments. It returns an error if there are positional arguments.
func parse(flags *pflag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parsing %s's flags: %w", flags.Name(), err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("parsing %s's flags: unknown command %q", flags.Name(), flags.Arg(0))
	}
	return nil
}

// doubleDashes adds a dash to flags with a single dash. Programs that use package flag accept a single dash, but pflag
// doesn't.
func doubleDashes(args []string) []string {
	doubled := make([]string, 0, len(args))
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && len(arg) > 2 {
			arg = "-" + arg
		}
		doubled = append(doubled, arg)
	}
	return doubled
}
